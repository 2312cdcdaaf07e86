"""The two programs of an exam, each in a box of its own: one holds the tests, the other the solution.

They meet only in the program outside, which carries calls one way and plain values the other.
"""
