"""Fuzzing of everything that reads from outside: each target takes bytes and must keep its promises."""
