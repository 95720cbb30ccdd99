"""What tests and claims stand on: a far machine on this one, a site, and a look at what is left."""
