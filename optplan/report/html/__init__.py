"""One answer as one offline page: records turned into plain values, drawings and templates."""
