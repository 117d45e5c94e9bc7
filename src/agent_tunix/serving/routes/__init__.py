"""Routes of replies: their parameters, and their answers whole or as a stream."""
