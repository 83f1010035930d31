"""Access control lists: values, filters, and the authorizer that decides by them."""
