"""The operations of the broker: one file each, written against ports that the backends implement."""
