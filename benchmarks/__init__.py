"""One question a file. Every benchmark prints ratios against a floor and a peer, and is never a test."""
