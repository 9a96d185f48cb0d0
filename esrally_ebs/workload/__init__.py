"""What is raced: documents to search in, and queries."""
