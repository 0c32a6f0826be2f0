"""The machines and processes a federation runs on: SuperLink, SuperNodes, their certificates, and whether a host is fit."""
