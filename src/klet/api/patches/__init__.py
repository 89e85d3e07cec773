"""Patches of objects held as plain JSON data: JSON, merge and strategic merge patch. Inputs are never changed."""
