"""The check of boards: types, traps, queries, links, layout, colours."""
