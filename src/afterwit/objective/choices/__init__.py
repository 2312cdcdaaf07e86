"""What the settings of an objective may name: one file and one table for each choice.

objectives      which terms of the loss a reward and a hint become
baselines       what is taken off a reward
hint_selection  which hint teaches
subsets         which ids learn in top-K OPD
aggregations    what each term is divided by
"""
