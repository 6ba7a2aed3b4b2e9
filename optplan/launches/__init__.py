"""Launch files of training frameworks, read and written: one dialect a file."""
