"""What the screen is made of; no widget knows another."""
