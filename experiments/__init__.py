"""How we know: simulation, study, comparisons and the pretraining of the demo's models. Not installed."""
