"""Where pods come from: files, URLs; and merging what they say into changes."""
