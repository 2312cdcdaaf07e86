"""Responses through the model: rows, packing, log-probs of student and teacher."""
