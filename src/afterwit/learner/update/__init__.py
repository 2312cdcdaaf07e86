"""One update: micro-batches, gradients, the optimiser's step, its metrics."""
