"""The tools themselves, kit by kit."""
