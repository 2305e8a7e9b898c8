"""Token ids to text and back."""
