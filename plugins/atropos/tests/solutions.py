"""Solutions of the built-in tasks: those that are right, and those that know what the prompt shows alone."""

from __future__ import annotations

from afterwit_atropos.coding.tasks import Task

GOOD = {
    "fizzbuzz": """
def fizzbuzz(n):
    return ["Fizz" * (i % 3 == 0) + "Buzz" * (i % 5 == 0) or str(i) for i in range(1, n + 1)]
""",
    "palindrome": """
def is_palindrome(text):
    kept = [c.lower() for c in text if c.isalnum()]
    return kept == kept[::-1]
""",
    "two_sum": """
def two_sum(numbers, target):
    seen = {}
    for i, number in enumerate(numbers):
        if target - number in seen:
            return [seen[target - number], i]
        seen[number] = i
""",
    "flatten": """
def flatten(values):
    found = []
    for value in values:
        found.extend(flatten(value) if isinstance(value, list) else [value])
    return found
""",
    "longest_common_prefix": """
import os
def longest_common_prefix(words):
    return os.path.commonprefix(words)
""",
    "group_anagrams": """
def group_anagrams(words):
    groups = {}
    for word in words:
        groups.setdefault("".join(sorted(word)), []).append(word)
    return list(groups.values())
""",
    "valid_parentheses": """
def is_valid(text):
    opened = []
    for c in text:
        if c in "([{":
            opened.append(c)
        elif not opened or "([{".index(opened.pop()) != ")]}".index(c):
            return False
    return not opened
""",
    "merge_intervals": """
def merge(intervals):
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged
""",
}


def only_the_examples(task: Task) -> str:
    """A solution with the results of the examples in the task's prompt, none of which is a hidden test."""
    examples = [line.split(" == ") for line in task.prompt.splitlines() if " == " in line]
    assert examples
    for call, _ in examples:
        assert all(call not in test for test in task.tests), "an example is a hidden test"
    function = examples[0][0].split("(")[0]
    known = ", ".join(f"(({call.removeprefix(function)[1:-1]},), {result})" for call, result in examples)
    return f"""
KNOWN = [{known}]
def {function}(*given):
    return next((result for asked, result in KNOWN if asked == given), None)
"""
