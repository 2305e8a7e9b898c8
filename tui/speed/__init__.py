"""Numbers of the steps, and how they are drawn. No widgets."""
