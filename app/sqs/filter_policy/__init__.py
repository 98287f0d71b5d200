"""Filter policies of SNS, translated to filters of the broker."""
