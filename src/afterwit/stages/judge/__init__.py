"""The judge stage: claims an answered turn, asks the judge, commits the verdict."""
