"""The verbs of the broker by family, written against ports that the backends implement."""
