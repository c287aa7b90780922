"""Finds speech in a sound with the silero VAD network (github.com/snakers4/silero-vad, MIT).
sound: a test sound of sentences between silence and noises; detect: probabilities and spans; picture: draws both over time."""
