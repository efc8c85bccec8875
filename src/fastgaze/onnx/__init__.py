"""Between torch and ONNX files: writing them, reading them back, and what their graphs cost."""
