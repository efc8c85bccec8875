"""What ships: from a picture to a gaze map with numpy, Pillow and onnxruntime."""
