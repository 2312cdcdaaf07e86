"""What trains and in which precision: full weights or an adapter, master weights, EMA, the optimiser."""
