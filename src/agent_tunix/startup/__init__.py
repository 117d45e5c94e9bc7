"""What a program does before and while it starts: JAX settings, the compilation cache, timings."""
