"""What ships: from an image to a gaze map with numpy, Pillow and onnxruntime."""
