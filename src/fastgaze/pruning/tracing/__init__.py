"""From a network and an example input to layers and maps: one run in which every channel is followed."""
