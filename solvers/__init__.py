"""How a program is solved: engines that know rows and tables, and no transformer."""
