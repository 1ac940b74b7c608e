"""The learning algorithm: parameters, bucketing, training and the model it gives."""
