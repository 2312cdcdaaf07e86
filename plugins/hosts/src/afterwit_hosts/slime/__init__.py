"""A plugin for slime, named on its command line by dotted paths; slime itself stays as it is.

requirements   requirements on slime's flags and the home's settings
lesson         one response with all that its loss reads
lessons        the turns of a home's next update
scoring        the teacher's scores
source         `--data-source-path`: those turns as slime's samples
rollout        `--rollout-function-path`: takes them
data           `--custom-convert-samples-to-train-data-path`, `--rollout-data-postprocess-path`: what comes
               with them
shards         log-probs and likeliest ids from logits whose vocabulary is shared out over processes
loss           `--custom-loss-function-path`: the objective on such logits
commit         `--custom-update-weight-post-write-path`: what slime wrote becomes a version of the home
"""
