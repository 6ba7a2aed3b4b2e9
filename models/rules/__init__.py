"""What must hold: one family of rules a file, each rule with both its faces."""
