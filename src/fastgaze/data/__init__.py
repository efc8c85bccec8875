"""Images and fixations; numpy only."""
