"""Thin routes: parse, call one method, shape the answer."""
