"""The endpoints: what each operation does."""
