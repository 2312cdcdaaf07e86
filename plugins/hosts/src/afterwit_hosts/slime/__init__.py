"""A plugin for slime, named on its command line by dotted paths; slime itself stays as it is.

requirements   requirements on slime's flags and the home's settings
lessons        the turns of a home's next update, and the teacher's scores
rollout        `--data-source-path`, `--rollout-function-path`, `--custom-convert-samples-to-train-data-path`
training       `--rollout-data-postprocess-path`, `--custom-loss-function-path`,
               `--custom-update-weight-post-write-path`
shards         log-probs and likeliest ids from logits whose vocabulary is shared out over processes
"""
