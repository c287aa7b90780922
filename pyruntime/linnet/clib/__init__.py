"""Access to the C library: finds and opens it, declares its functions, and turns its errors into exceptions."""
