"""Figures for papers, tables and traces of runs."""
