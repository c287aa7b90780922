"""Access to the C library: its binding, finding and opening it, and its errors as exceptions."""
