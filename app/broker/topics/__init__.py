"""Topics, their subscriptions, and what is published to them."""
