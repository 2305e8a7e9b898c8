"""What is asked of the user apart from the chat; each dialog gives one answer."""
