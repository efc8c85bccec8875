"""What `experiments/report.py` is made of: the paper's figures, pages, drawings and sections."""
