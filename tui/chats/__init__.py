"""Chats: the file they are kept in, and exporting them."""
