"""Results for people: the terminal today, one offline page tomorrow."""
