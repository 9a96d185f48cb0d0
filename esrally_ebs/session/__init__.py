"""The story of a session: prepare, measure, finish, take down, whoever starts it."""
