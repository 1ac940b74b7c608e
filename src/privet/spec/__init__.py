"""What all agree on before a training, and what is learned."""
