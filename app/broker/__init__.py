"""The verbs: one file each, over ports that the rooms fulfil."""
