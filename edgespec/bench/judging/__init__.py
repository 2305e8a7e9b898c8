"""What the cells of a run say: estimates, words, cautions."""
