"""The names of other libraries, for their programs."""
